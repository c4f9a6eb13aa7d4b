"""Pure: what several instances share. Membership, last-writer-wins registers, the replication log and its messages."""

"""What ``poolmuster demo`` starts beside the real programs: model servers for want of real ones, tied to its life."""

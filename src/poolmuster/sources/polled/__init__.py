"""The registration store on a table that is read whole once a second; `table` is the port that a product implements."""

"""How time, memory and accuracy grow with the number of rows, beside other methods."""

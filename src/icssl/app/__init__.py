"""What people use: the command line, the page, labelling of files, figures."""

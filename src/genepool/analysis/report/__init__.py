"""Here the records of runs become figures and tables on one page; the entrance is `build.report`."""

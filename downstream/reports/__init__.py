"""Reports: pages, plots and tables."""

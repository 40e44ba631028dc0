"""What each kind of algorithm offers: how it runs, costs and errs; the registry lists them."""

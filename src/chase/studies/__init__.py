"""The paper's experiments: one declaration a study, one runner for all of them."""

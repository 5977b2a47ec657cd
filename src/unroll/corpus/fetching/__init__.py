"""The paper's data sets, brought from their publisher and checked."""

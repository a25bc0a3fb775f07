"""The use of a result: the trained model of a run, as files for elsewhere and for predictions here."""

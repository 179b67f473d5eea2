"""The real clients of 2015 to 2018, which the tests hold this code against."""

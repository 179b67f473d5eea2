"""The real clients of 2015 to 2018. The tests show that this code works with them."""

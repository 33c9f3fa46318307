"""Commands for the objects of an authentication, one by one."""

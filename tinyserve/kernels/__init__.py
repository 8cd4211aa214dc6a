"""The op set and its implementations. Arrays in, arrays out: nothing here knows a model or a cache."""

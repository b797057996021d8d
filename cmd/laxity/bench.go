package main

func (c *cli) addBench() {}

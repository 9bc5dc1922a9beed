// Package process starts programs for tests, Spillway above all. The invariant: no program outlives
// the test binary that started it, however that ends; and what a program said is shown if its test
// fails.
package process

// Package watchstart holds Spillway to what a client may rely on once it has the head of a watch:
// whatever it does from then on, the watch shows it. Its tests open a watch at the API server and
// the same through Spillway, whose questions to the API server are answered late, out of order or
// never; they write the moment that the head is there, and compare. There is nothing here but
// tests.
package watchstart

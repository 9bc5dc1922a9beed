// Package status looks at Spillway as operators do: at the status page, as JSON, in a browser and
// in a terminal, while 200 clients watch a real control plane through it.
package status

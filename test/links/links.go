// Package links holds the documents to their links: whatever one refers to in this repository is there.
package links

// Package links checks that links of documents lead to files and anchors of this repository.
package links

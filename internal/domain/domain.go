// Package domain has the name that tells this project's labels, annotations and APIs from others.
package domain

// Domain is a DNS name. It is the prefix of labels and annotations (Domain/inject), and the end of
// the API group of the configuration file (config.Domain). hack/own.sh changes it everywhere.
const Domain = "spillway.example.com"

// Package discovery finds out which resources the API server serves, what they are, and when that
// changes.
//
//	--resources ──▶ Resolve ───────┐
//	everything  ──▶ Discover ──────┼──▶ catalog, origins, definitions ──▶ object.Resource, or
//	a new CRD   ──▶ ReadResource ──┘                                      NotMirroredError
//
//	definitions or APIServices ──watch──▶ FollowDefinitions, FollowServices
//	where these may not be read ──poll──▶ ReadStorageHashes, ReadSchemaHashes
//
// A resource is built in, custom, or of an aggregated server, and its bytes depend on which
// (origin). A custom one has a definition, whose epoch identifies all parts that the API server
// makes its answers from (definition.Epoch).
//
// Invariant: a group whose APIService may not be read counts as kube-apiserver's own. An error
// about one resource says that it is not served, or that it is never mirrored. Any other error
// concerns the API server.
package discovery

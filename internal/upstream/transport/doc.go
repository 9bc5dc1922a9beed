// Package transport makes everything that connects to one upstream, and keeps it in step with the
// files that say which authorities to trust there and which credentials to show.
//
//	LoadConfig ──▶ Factory ──Bare──────────────────────────▶ Transport ──▶ dialer ──▶ upstream
//	                  │ ──Own──▶ token, client-go's wrappers ──▶ Transport
//	                  ▼ Run: looks at the files each 10 s
//	   kubeconfig, authorities, client certificate, token: when they change, a Transport begins
//	   another generation of connections
//
// Invariant: requests under way and watches keep their connections when a file changes; new
// requests get new ones. Credentials are shown to no server but the one that was named at the
// start.
package transport

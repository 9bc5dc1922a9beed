package conformance

// Rule is one of the numbered observations of kube-apiserver 1.37 that a proxy of GET, LIST and
// WATCH is held to. A run shows which cases stand for which rule; a rule that no case stands for
// fails it, unless the table says where else it is tested or why it cannot be met on the wire.
type Rule struct {
	Number int
	// Name is what it is about.
	Name string
	// Elsewhere are tests that show it where no comparison with an API server can, as "folder
	// TestName". They must exist.
	Elsewhere []string
	// Exempt says why nothing can be shown.
	Exempt string
}

// Groups are what rules are about, each from the number of its first rule to that of the next one.
var Groups = []struct {
	From int
	Name string
}{
	{1, "connections, headers, bodies"}, {20, "paths and options"}, {40, "formats"}, {60, "lists"},
	{80, "continue tokens"}, {95, "objects"}, {100, "watches"}, {130, "streams"}, {150, "selectors"}, {170, "errors"},
	{190, "clients"}, {210, "freshness"}, {230, "history"}, {240, "shards, versions"}, {250, "transport"},
}

// GroupOf is the name of the group of a rule.
func GroupOf(number int) string {
	name := ""
	for _, g := range Groups {
		if number >= g.From {
			name = g.Name
		}
	}
	return name
}

// Rules are all of them, in order.
var Rules = []Rule{
	{Number: 1, Name: "protocol versions and ALPN"},
	{Number: 2, Name: "connections outlive watches"},
	{Number: 3, Name: "headers of every answer"},
	{Number: 4, Name: "deprecation warnings"},
	{Number: 5, Name: "Content-Length or chunks"},
	{Number: 6, Name: "gzip of GET and LIST"},
	{Number: 7, Name: "gzip of watch-lists"},
	{Number: 8, Name: "JSON bodies"},
	{Number: 9, Name: "pretty"},
	{Number: 10, Name: "in which format errors are told"},

	{Number: 20, Name: "paths"},
	{Number: 21, Name: "escapes, slashes and dots in paths"},
	{Number: 22, Name: "what authorizers are asked"},
	{Number: 23, Name: "methods"},
	{Number: 24, Name: "query syntax"},
	{Number: 25, Name: "booleans"},
	{Number: 26, Name: "integers"},
	{Number: 27, Name: "resourceVersion syntax"},
	{Number: 28, Name: "timeout is not timeoutSeconds"},
	{Number: 29, Name: "how long watches last"},
	{Number: 30, Name: "which of several errors is told"},
	{Number: 31, Name: "options that a LIST forbids"},
	{Number: 32, Name: "options that a WATCH forbids"},
	{Number: 33, Name: "deprecated /watch/ paths"},
	{Number: 34, Name: "options of a named object"},
	{Number: 35, Name: "a name by field selector"},

	{Number: 40, Name: "formats"},
	{Number: 41, Name: "Content-Type of answers"},
	{Number: 42, Name: "negotiation in two stages"},
	{Number: 43, Name: "parameters of media types"},
	{Number: 44, Name: "406"},
	{Number: 45, Name: "PartialObjectMetadata"},
	{Number: 46, Name: "Table"},
	{Number: 47, Name: "YAML"},
	{Number: 48, Name: "bodies and Content-Type of requests"},

	{Number: 60, Name: "envelope of lists"},
	{Number: 61, Name: "order of items"},
	{Number: 62, Name: "a list's resourceVersion"},
	{Number: 63, Name: "which state a LIST reads"},
	{Number: 64, Name: "states of the past"},
	{Number: 65, Name: "waiting for a resourceVersion"},
	{Number: 66, Name: "without etcd"},
	{Number: 67, Name: "expired lists"},
	{Number: 68, Name: "a resourceVersion that is too large"},
	{Number: 69, Name: "limit"},
	{Number: 70, Name: "remainingItemCount"},
	{Number: 71, Name: "limit with metadata.namespace by field"},
	{Number: 72, Name: "not ready",
		Elsewhere: []string{"internal/serve TestARequestBeforeTheFirstStateIsHeldThenRefused"}},

	{Number: 80, Name: "continue tokens"},
	{Number: 81, Name: "tokens are good on either side"},
	{Number: 82, Name: "tokens that cannot be read"},
	{Number: 83, Name: "tokens that have expired"},
	{Number: 84, Name: "tokens of states that are not held"},

	{Number: 95, Name: "which state a GET reads"},
	{Number: 96, Name: "404 of an object"},
	{Number: 97, Name: "subresources"},

	{Number: 100, Name: "what a watch begins with"},
	{Number: 101, Name: "watch-lists nobody asked for"},
	{Number: 102, Name: "the head comes first"},
	{Number: 103, Name: "types of events under a selector"},
	{Number: 104, Name: "deletions"},
	{Number: 105, Name: "order of events"},
	{Number: 106, Name: "a watch from the future"},
	{Number: 107, Name: "a watch from too long ago"},
	{Number: 108, Name: "errors before and in the stream"},
	{Number: 109, Name: "equal resourceVersions",
		Exempt: "only events have them, when a lease takes several at once; events are never mirrored"},
	{Number: 110, Name: "what a bookmark says"},
	{Number: 111, Name: "when bookmarks come"},
	{Number: 112, Name: "the end of a watch at its timeout"},
	{Number: 113, Name: "slow clients",
		Elsewhere: []string{"internal/watch TestAnyByteOfASlowClientIsProgress",
			"internal/watch TestAStalledClientIsEvictedAndDelaysNoOther",
			"internal/serve TestALogThatIsTooShortEndsTheWatchWith410"}},
	{Number: 114, Name: "shutdown",
		Elsewhere: []string{"cmd/proxy TestRunDrains", "internal/serve TestADrainEndsEachStreamAfterABookmark",
			"internal/watch TestDrainedStream"}},
	{Number: 115, Name: "upstream starts over"},
	{Number: 116, Name: "a definition is removed"},
	{Number: 117, Name: "selectors of watches"},
	{Number: 118, Name: "transforms of watches"},
	{Number: 119, Name: "watches over WebSockets"},
	{Number: 120, Name: "frames of WebSockets"},
	{Number: 121, Name: "clients close WebSockets"},
	{Number: 122, Name: "pings on WebSockets"},
	{Number: 123, Name: "what else clients send on WebSockets"},

	{Number: 130, Name: "JSON streams"},
	{Number: 131, Name: "chunk boundaries mean nothing"},
	{Number: 132, Name: "protobuf streams"},
	{Number: 133, Name: "protobuf documents"},
	{Number: 134, Name: "CBOR",
		Exempt: "an alpha gate of the API server that is off; asking for CBOR is a case of W-40 and W-43"},
	{Number: 135, Name: "gzip members"},
	{Number: 136, Name: "HTTP/2 framing"},

	{Number: 150, Name: "label selectors"},
	{Number: 151, Name: "field selectors"},
	{Number: 152, Name: "selectable fields"},
	{Number: 153, Name: "values of fields"},
	{Number: 154, Name: "errors of selectors"},

	{Number: 170, Name: "shape of errors"},
	{Number: 171, Name: "400"},
	{Number: 172, Name: "404"},
	{Number: 173, Name: "405"},
	{Number: 174, Name: "401 and 403"},
	{Number: 175, Name: "422"},
	{Number: 176, Name: "504"},
	{Number: 177, Name: "410"},
	{Number: 178, Name: "406, as an error"},
	{Number: 179, Name: "415"},
	{Number: 180, Name: "429",
		Elsewhere: []string{"internal/serve TestForwardLimits",
			"internal/serve TestARequestBeforeTheFirstStateIsHeldThenRefused"}},
	{Number: 181, Name: "500"},
	{Number: 182, Name: "503", Elsewhere: []string{"internal/passthrough TestFailureStatus",
		"internal/serve TestForwarderClose"}},

	{Number: 190, Name: "what informers ask"},
	{Number: 191, Name: "when informers start over"},
	{Number: 192, Name: "informers without watch-lists"},
	{Number: 193, Name: "what clients accept"},
	{Number: 194, Name: "streams of one connection"},
	{Number: 195, Name: "what kubectl asks"},
	{Number: 196, Name: "what kubelets, kube-proxy and controllers ask"},
	{Number: 197, Name: "what clients repeat"},
	{Number: 198, Name: "reads of now are the common case"},

	{Number: 210, Name: "what a read of now claims"},
	{Number: 211, Name: "signals of freshness", Elsewhere: []string{"internal/upstream/probes TestProbeAndProof",
		"internal/upstream/probes TestProofWithEvents"}},
	{Number: 212, Name: "a newest resourceVersion proves nothing", Elsewhere: []string{
		"internal/serve TestConsistentReadsAreNeverStale", "internal/serve TestPlantedStaleness"}},
	{Number: 213, Name: "proofs of freshness", Elsewhere: []string{"internal/upstream/probes TestProbeAndProof",
		"internal/freshness TestProofByTheMirror"}},
	{Number: 214, Name: "the resourceVersion of what is proven", Elsewhere: []string{
		"internal/freshness TestProofMovesProgress", "internal/freshness TestProofWaitsForTheMirrorsEvents"}},
	{Number: 215, Name: "watch-lists of now"},
	{Number: 216, Name: "waiting for a proof is bounded"},
	{Number: 217, Name: "no proof without etcd"},

	{Number: 230, Name: "where history begins"},
	{Number: 231, Name: "after a relist"},
	{Number: 232, Name: "several API servers", Elsewhere: []string{
		"internal/upstream/probes TestProbesReuseTheirConnection"}},
	{Number: 233, Name: "every request by its own user"},
	{Number: 234, Name: "versions of one resource differ"},
	{Number: 235, Name: "JSON is what is kept"},
	{Number: 236, Name: "bookmarks that are truthful"},
	{Number: 237, Name: "watches end at different times", Elsewhere: []string{"internal/plan TestPlanWatch"}},
	{Number: 238, Name: "an event is encoded once", Elsewhere: []string{
		"internal/fanout TestFeedIsSharedAndGoesWithItsLastHolder", "internal/fanout TestDispatchAllocatesPerSegmentOnly"}},

	{Number: 240, Name: "shards"},
	{Number: 241, Name: "429 in place of a fallback", Exempt: "an alpha gate of the API server that is off"},
	{Number: 242, Name: "resourceVersions are decimal", Elsewhere: []string{"internal/upstream TestUncacheable",
		"internal/object TestParseRefuses"}},

	{Number: 250, Name: "no path is repaired, no query read leniently"},
	{Number: 251, Name: "no header of the server's own"},
	{Number: 252, Name: "what TLS offers"},
	{Number: 253, Name: "idle watches stay", Elsewhere: []string{"internal/watch TestTheHeadIsSentBeforeAnyEvent",
		"internal/serve TestDepartedIsNoticed"}},
	{Number: 254, Name: "streams end properly"},
	{Number: 255, Name: "content codings by W-6 and W-7 alone"},
	{Number: 256, Name: "spelling of header names"},
	{Number: 257, Name: "errors by which layer tells them"},
}

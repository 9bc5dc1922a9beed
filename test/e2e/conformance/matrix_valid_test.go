package conformance

// validSet is what clients may request: every value is one that the API server takes, and goes with
// every other. So what the answers are is decided by the state that is read, not by what is wrong
// with the request; that a state has expired is an answer, too.
const validSet = "valid combinations"

const (
	watched       = "/api/v1/watch/namespaces/c1/configmaps"
	watchedWidget = "/apis/" + widgetGroup + "/v1/watch/widgets"
)

var (
	// What names a state, in all ways that W-63 knows. The first is any state, not the most recent
	// one.
	listedStates = dimension{together, []string{
		"resourceVersion=0", absent, "resourceVersion=0&resourceVersionMatch=NotOlderThan",
		"resourceVersion=${old}", "resourceVersion=${first}", "resourceVersion=${mid}", "resourceVersion=${last}",
		"resourceVersion=${old}&resourceVersionMatch=NotOlderThan",
		"resourceVersion=${mid}&resourceVersionMatch=NotOlderThan",
		"resourceVersion=${last}&resourceVersionMatch=NotOlderThan",
		"resourceVersion=${old}&resourceVersionMatch=Exact", "resourceVersion=${first}&resourceVersionMatch=Exact",
		"resourceVersion=${mid}&resourceVersionMatch=Exact", "resourceVersion=${last}&resourceVersionMatch=Exact",
		"continue=${page-direct}", "continue=${page-plain}", "continue=${token-last}", "continue=${token-any}",
		"continue=${page-plain}&resourceVersion=0",
	}}
	readStates = dimension{"resourceVersion", []string{"0", absent, "1", "${old}", "${first}", "${mid}", "${last}"}}
	// What a watch begins with, in all ways that W-100 knows. What needs a proof lasts long enough for
	// it.
	watchedStates = dimension{together, []string{
		"timeoutSeconds=1&resourceVersion=0", "timeoutSeconds=7", "timeoutSeconds=7" + initial, "timeoutSeconds=1" + noState,
		"timeoutSeconds=1&resourceVersion=0" + initial, "timeoutSeconds=1&resourceVersion=0" + noState,
		"timeoutSeconds=1&resourceVersion=${first}", "timeoutSeconds=2&resourceVersion=${mid}",
		"timeoutSeconds=3&resourceVersion=${last}",
		"timeoutSeconds=1&resourceVersion=${old}" + initial, "timeoutSeconds=1&resourceVersion=${mid}" + initial,
		"timeoutSeconds=3&resourceVersion=${last}" + initial,
		"timeoutSeconds=1&resourceVersion=${mid}" + noState, "timeoutSeconds=1&resourceVersion=${future}",
	}}
	legacyStates = dimension{together, []string{
		"timeoutSeconds=1&resourceVersion=0", "timeoutSeconds=1", "timeoutSeconds=1&resourceVersion=${first}",
		"timeoutSeconds=2&resourceVersion=${mid}",
		"watch=1&timeoutSeconds=1&resourceVersion=${mid}" + initial, "watch=1&timeoutSeconds=1&resourceVersion=${mid}" +
			noState,
	}}

	someLimit    = dimension{"limit", []string{absent, "0", "1", "2", "500"}}
	someSelector = dimension{together, []string{
		absent, "labelSelector=app%3Dx", "labelSelector=app%21%3Dx", "labelSelector=app%20in%20%28x,w1%29,touched%21%3Dyes",
		"fieldSelector=metadata.name%3Da",
		"fieldSelector=metadata.name%21%3Da",
	}}
	someMarks  = dimension{"allowWatchBookmarks", []string{absent, "true", "false"}}
	somePretty = dimension{"pretty", []string{absent, absent, absent, "true", "false"}}
	// What client-go, metadata clients and curl accept: each can have it of every resource.
	listFormats = dimension{accepted, []string{
		absent, jsonType, protobufType + "," + jsonType, jsonType + asPartials, protobufType + asPartials,
	}}
	objectFormats = dimension{accepted, []string{
		absent, jsonType, protobufType + "," + jsonType, jsonType + asPartial, protobufType + asPartial,
	}}
)

// validCombinations are the matrices of validSet.
func validCombinations() []matrix {
	everywhere := []string{c1, allMaps, "/api/v1/nodes", someWidgets, allWidgets, "/api/v1/pods", "/api/v1/namespaces",
		"/apis/apps/v1/namespaces/c1/deployments"}
	return []matrix{
		{
			name: "list", set: validSet, verb: "LIST", rules: "W-61 W-62 W-63 W-64 W-69 W-70 W-80 W-81 W-117", sample: 40,
			part:    400,
			targets: everywhere, paged: true,
			crossed:   []dimension{listedStates, someLimit, someSelector, listFormats},
			scattered: []dimension{somePretty, {"timeout", []string{absent, absent, "30s"}}},
		},
		{
			name: "watch", set: validSet, verb: "WATCH", rules: "W-100 W-101 W-105 W-110 W-111 W-117 W-118", sample: 24,
			part:    200,
			targets: everywhere, options: "watch=1",
			crossed:   []dimension{watchedStates, someMarks, someSelector, objectFormats},
			scattered: []dimension{somePretty},
		},
		{
			name: "deprecated watch", set: validSet, verb: "WATCH", rules: "W-33 W-100", sample: 12, part: 100,
			targets:   []string{watched, watched + "/a", watchedWidget},
			crossed:   []dimension{legacyStates, someMarks, objectFormats},
			scattered: []dimension{somePretty},
		},
		{
			name: "get", set: validSet, verb: "GET", rules: "W-34 W-45 W-95", sample: 15, part: 100,
			targets: []string{
				c1 + "/a", "/api/v1/nodes/n1", someWidgets + "/w1", "/api/v1/namespaces/c1/pods/p1", "/api/v1/namespaces/c1",
				"/apis/apps/v1/namespaces/c1/deployments/d1",
			},
			crossed:   []dimension{readStates, objectFormats, {"pretty", []string{absent, "true", "false"}}},
			scattered: []dimension{{"timeout", []string{absent, absent, "30s"}}},
		},
	}
}

package discovery

import (
	"context"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"spillway/internal/upstream"
)

// ReadStorageHashes reads the storageVersionHashes of the resources in one group and version, by
// resource. When one changes, the API server decodes what it has stored as another type.
func ReadStorageHashes(ctx context.Context, c *upstream.Client, gv schema.GroupVersion) (map[string]string, error) {
	list, err := c.Discovery().ServerResourcesForGroupVersionWithContext(ctx, gv.String())
	if err != nil {
		return nil, err
	}
	hashes := map[string]string{}
	for _, r := range list.APIResources {
		hashes[r.Name] = r.StorageVersionHash
	}
	return hashes, nil
}

// ReadSchemaHashes reads the hashes of the OpenAPI documents of all groups and versions. Where
// definitions may not be read, a hash that changes shows another schema. It may also change without
// a cause: the API server makes the documents again now and then.
func ReadSchemaHashes(ctx context.Context, c *upstream.Client) (map[schema.GroupVersion]string, error) {
	var index struct {
		Paths map[string]struct {
			URL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := c.GetJSON(ctx, upstream.GetRequest{Verb: "get", Path: "/openapi/v3"}, &index); err != nil {
		return nil, err
	}
	hashes := map[schema.GroupVersion]string{}
	for path, at := range index.Paths {
		gv, ok := groupVersionOf(path)
		if !ok {
			continue
		}
		if u, err := url.Parse(at.URL); err == nil {
			hashes[gv] = u.Query().Get("hash")
		}
	}
	return hashes, nil
}

// groupVersionOf reads "api/v1" and "apis/apps/v1"; the index has other paths, too.
func groupVersionOf(path string) (schema.GroupVersion, bool) {
	group, version, ok := "", "", false
	if rest, core := strings.CutPrefix(path, "api/"); core {
		version, ok = rest, true
	} else if rest, named := strings.CutPrefix(path, "apis/"); named {
		group, version, ok = strings.Cut(rest, "/")
	}
	return schema.GroupVersion{Group: group, Version: version}, ok && version != "" && !strings.Contains(version, "/")
}

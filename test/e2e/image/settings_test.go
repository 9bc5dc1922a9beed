package image

import (
	"encoding/json"
	"testing"
	"time"

	"spillway/test/framework/buildah"
)

// The arguments that images are built with here.
const (
	version  = "v1.2.3"
	revision = "0123456789abcdef0123456789abcdef01234567"
	source   = "https://git.example.com/spillway"
	epoch    = "1700000000"
	created  = "2023-11-14T22:13:20Z"
)

// build builds an image and returns its digest.
func build(store *buildah.Store, tag string) string {
	store.Build(tag, "VERSION="+version, "REVISION="+revision, "SOURCE="+source, "SOURCE_DATE_EPOCH="+epoch)
	return store.Run("buildah", "images", "--no-trunc", "--quiet", "localhost/"+tag)
}

// settings are an image's, as the OCI's image-spec names them.
type settings struct {
	Created time.Time
	Config  struct {
		User         string
		Entrypoint   []string
		ExposedPorts map[string]struct{}
		Labels       map[string]string
	}
}

func settingsOf(t *testing.T, store *buildah.Store, tag string) settings {
	t.Helper()
	var image struct{ OCIv1 settings }
	must(t, json.Unmarshal([]byte(store.Run("buildah", "inspect", "--type=image", "localhost/"+tag)), &image))
	return image.OCIv1
}

// unpack is a folder with an image's files.
func unpack(store *buildah.Store, tag string) string {
	return store.Run("buildah", "mount", store.Run("buildah", "from", "--pull-never", "localhost/"+tag))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

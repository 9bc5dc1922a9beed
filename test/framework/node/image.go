package node

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// Image is a container image of a single static program, for a node without a registry. The program
// is in the root folder, as /spillway is in the image of the Dockerfile, and is the entry point.
type Image struct {
	Name    string // as a pod names it, such as localhost/pause:1
	Program string // the file
	As      string // the program's name in the image; empty: that of the file
	User    string // uid:gid
	// Commands are links to the program in /bin, by name, for one that goes by the name by which it is
	// started, as BusyBox does.
	Commands []string
}

// Write writes the image as an OCI archive (image-layout of the OCI's image-spec), which containerd
// imports.
func (i Image) Write(archive string) error {
	program, err := os.ReadFile(i.Program)
	if err != nil {
		return fmt.Errorf("cannot read the program of image %s: %w", i.Name, err)
	}
	entrypoint := cmp.Or(i.As, filepath.Base(i.Program))
	contents := []file{{name: entrypoint, mode: 0o755, content: program}}
	for _, command := range i.Commands {
		contents = append(contents, file{name: "bin/" + command, mode: 0o777, link: "/" + entrypoint})
	}
	layer, err := tarOf(contents...)
	if err != nil {
		return err
	}
	var blobs []file
	blob := func(content []byte) (digest string) {
		sum := sha256.Sum256(content)
		digest = hex.EncodeToString(sum[:])
		blobs = append(blobs, file{name: "blobs/sha256/" + digest, mode: 0o644, content: content})
		return "sha256:" + digest
	}
	descriptor := func(mediaType string, value any) map[string]any {
		content, ok := value.([]byte)
		if !ok {
			content, _ = json.Marshal(value) // maps of strings: it cannot fail
		}
		return map[string]any{"mediaType": mediaType, "digest": blob(content), "size": len(content)}
	}
	const media = "application/vnd.oci.image."
	layers := descriptor(media+"layer.v1.tar", layer)
	config := descriptor(media+"config.v1+json", map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/" + entrypoint}, "User": i.User},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []any{layers["digest"]}},
	})
	manifest := descriptor(media+"manifest.v1+json", map[string]any{
		"schemaVersion": 2, "mediaType": media + "manifest.v1+json", "config": config, "layers": []any{layers},
	})
	manifest["annotations"] = map[string]string{"io.containerd.image.name": i.Name}
	index, _ := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []any{manifest}}) // as above
	text, err := tarOf(append(blobs, file{name: "index.json", mode: 0o644, content: index},
		file{name: "oci-layout", mode: 0o644, content: []byte(`{"imageLayoutVersion": "1.0.0"}`)})...)
	if err != nil {
		return err
	}
	if err := os.WriteFile(archive, text, 0o600); err != nil {
		return fmt.Errorf("cannot write image %s: %w", i.Name, err)
	}
	return nil
}

type file struct {
	name    string
	mode    int64
	content []byte
	link    string // what a symbolic link names; empty: it is a file
}

func tarOf(files ...file) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), Typeflag: tar.TypeReg}
		if f.link != "" {
			header.Typeflag, header.Linkname = tar.TypeSymlink, f.link
		}
		err := w.WriteHeader(header)
		if err == nil {
			_, err = w.Write(f.content)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot put %s into an archive: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("cannot finish an archive: %w", err)
	}
	return b.Bytes(), nil
}

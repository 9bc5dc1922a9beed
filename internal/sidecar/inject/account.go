package inject

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// accountFiles are the files that in-cluster configuration reads, and so the sidecar, too.
var accountFiles = []string{"ca.crt", "namespace", "token"}

// tokenSeconds is how long tokens of TokenVolume are valid: as long as those of the API server's
// volumes.
const tokenSeconds = 3607

// findAccountMount is a container's mount of the pod's service account, which the sidecar shares;
// nil: there is none.
func findAccountMount(spec *Spec) *corev1.VolumeMount {
	for _, c := range everyContainer(spec) {
		if i := accountMountIndex(c); i >= 0 {
			return ptr.To(c.VolumeMounts[i])
		}
	}
	return nil
}

// checkAccount returns a *SkippedError if the sidecar cannot share what containers mount at
// accountDir. That must be one volume with accountFiles and nothing else, because FilesVolume,
// which replaces it, has no more.
func checkAccount(spec *Spec) error {
	var one *corev1.VolumeMount
	for _, c := range everyContainer(spec) {
		i := accountMountIndex(c)
		if i < 0 {
			continue
		}
		mount := &c.VolumeMounts[i]
		skip := func(why string) error {
			return newNotableSkip("container %s mounts its volume %s at %s, %s: remove that, or annotate the pod %s: %s",
				c.Name, mount.Name, accountDir, why, OptAnnotation, OptOut)
		}
		switch {
		case strings.HasPrefix(mount.Name, apiServerVolumePrefix):
			continue // the API server's own
		case one != nil && (one.Name != mount.Name || one.ReadOnly != mount.ReadOnly):
			return skip("and another one does otherwise")
		case mount.SubPath != "" || mount.SubPathExpr != "":
			return skip("and of that a part, which is not renewed")
		default:
			if why := differenceFromAccount(spec, mount.Name); why != "" {
				return skip(why)
			}
		}
		one = mount
	}
	return nil
}

// differenceFromAccount is how a volume differs from a service account's; empty: it does not.
func differenceFromAccount(spec *Spec, name string) string {
	i := slices.IndexFunc(spec.Volumes, func(v Volume) bool { return v.Name == name })
	if i < 0 || spec.Volumes[i].Projected == nil {
		return "which is not projected"
	}
	var files []string
	for _, s := range spec.Volumes[i].Projected.Sources {
		switch {
		case s.ServiceAccountToken != nil:
			if s.ServiceAccountToken.Audience != "" {
				return "whose token is for " + s.ServiceAccountToken.Audience + " and not for the API server"
			}
			files = append(files, s.ServiceAccountToken.Path)
		case s.ConfigMap != nil && len(s.ConfigMap.Items) == 0:
			if s.ConfigMap.Name != "kube-root-ca.crt" {
				return "with all of config map " + s.ConfigMap.Name
			}
			files = append(files, "ca.crt")
		case s.ConfigMap != nil:
			files = append(files, pathsOf(s.ConfigMap.Items)...)
		case s.DownwardAPI != nil:
			files = append(files, pathsOf(s.DownwardAPI.Items)...)
		case s.ClusterTrustBundle != nil:
			files = append(files, s.ClusterTrustBundle.Path)
		default:
			return "with more than a service account"
		}
	}
	slices.Sort(files)
	if files = slices.Compact(files); !slices.Equal(files, accountFiles) {
		return fmt.Sprintf("with %s instead of %s", strings.Join(files, ", "), strings.Join(accountFiles, ", "))
	}
	return ""
}

func pathsOf(items []PathSource) (all []string) {
	for _, item := range items {
		all = append(all, item.Path)
	}
	return all
}

// newAccountVolume makes the volume that the API server mounts for a service account, in
// TokenVolume.
func newAccountVolume() corev1.Volume {
	return corev1.Volume{Name: TokenVolume,
		VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token",
				ExpirationSeconds: ptr.To[int64](tokenSeconds)}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		}}}}
}

/** The version of kube-relay, as in `deno.json`. */
export const VERSION = "0.1.0";

/** The release of kube-proxy whose flags, files, ports and metrics kube-relay follows. */
export const KUBE_PROXY_RELEASE = "1.36";

/** Returns the output of `--version`. */
export function versionText(): string {
  return `kube-relay v${VERSION} (kube-proxy ${KUBE_PROXY_RELEASE} compatible)`;
}

/** The details that a bug report needs. */
export function rawVersion(): string {
  const { os, arch, standalone } = Deno.build;
  const { deno, v8 } = Deno.version;
  return [
    `version=${VERSION}`,
    `kubeProxy=${KUBE_PROXY_RELEASE}`,
    `platform=${os}/${arch}`,
    `deno=${deno}`,
    `v8=${v8}`,
    `standalone=${standalone}`,
  ].join(" ");
}

import { KUBE_PROXY_RELEASE, VERSION } from "../../config/version.ts";
import type { TextCommand } from "./commands/command.ts";

/** Returns the output of `--version`. */
export function versionText(): string {
  return `kube-relay v${VERSION} (kube-proxy ${KUBE_PROXY_RELEASE} compatible)`;
}

/** Prints the version. */
export const versionCommand: TextCommand = {
  name: "version",
  summary: "print the version (like --version; --version=raw prints more)",
  text: ({ version }) => `${version === "raw" ? rawVersion() : versionText()}\n`,
};

/** The details that a bug report needs. */
function rawVersion(): string {
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

import type { TellingCommand } from "./command.ts";
import { KUBE_PROXY_RELEASE, VERSION, versionText } from "../version.ts";

/** Prints which version this is. */
export const versionCommand: TellingCommand = {
  name: "version",
  summary: "print the version (like --version; --version=raw prints more)",
  text: ({ version }) => `${version === "raw" ? rawVersion() : versionText()}\n`,
};

/** What a bug report needs. */
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

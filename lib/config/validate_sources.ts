/**
 * Whether our own flags fit together.
 *
 * @module
 */

import type { FlagValues } from "./flags.ts";

/** Longest path of a Unix socket in bytes: unix(7) has 108, with the zero at the end. */
const LONGEST_SOCKET_PATH = 107;

/** What is checked beside the flags. */
export interface SourcesAndSocket {
  /** The kubeconfig of the flag or the file; empty = none. */
  readonly kubeconfig: string;
  readonly controlSocket: string;
}

/** What is wrong, each problem with its flag. */
export function validateSources(
  { manifests, master }: Pick<FlagValues, "manifests" | "master">,
  { kubeconfig, controlSocket }: SourcesAndSocket,
): readonly string[] {
  const problems: string[] = [];
  if (manifests?.length === 0) {
    problems.push("--manifests: Expected the path of a file or folder, found nothing");
  }
  const other = master === undefined ? kubeconfig && `kubeconfig '${kubeconfig}'` : "--master";
  if (manifests && other) {
    problems.push(
      `--manifests: Cannot take objects from manifests and from ${other} at once; give one of them`,
    );
  }
  const { length } = new TextEncoder().encode(controlSocket);
  if (length > LONGEST_SOCKET_PATH) {
    problems.push(
      `--control-socket: Expected a path of at most ${LONGEST_SOCKET_PATH} bytes, ` +
        `found '${controlSocket}' with ${length}: Unix sockets have no room for more`,
    );
  }
  return problems;
}

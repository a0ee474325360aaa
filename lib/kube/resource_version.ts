/**
 * Versions of a cluster's state.
 *
 * @module
 */

/**
 * Whether `version` is from before `other`. Versions of one cluster are numbers that only grow (promised
 * since Kubernetes 1.35, true of every server before); of what is no number nothing is said.
 */
export function isOlderVersion(version: string | undefined, other: string): boolean {
  if (version === undefined || !isNumber(version) || !isNumber(other)) return false;
  // As text: they may be larger than what a number holds.
  return version.length === other.length ? version < other : version.length < other.length;
}

function isNumber(version: string): boolean {
  return /^(0|[1-9][0-9]*)$/.test(version);
}

/**
 * Returns whether `version` is older than `other`, or false if one of them is not a number. Versions
 * of a cluster are growing numbers (guaranteed since Kubernetes 1.35, and true for all earlier
 * servers).
 */
export function isOlderVersion(version: string | undefined, other: string): boolean {
  if (version === undefined || !isNumber(version) || !isNumber(other)) return false;
  // Compared as text, because they may exceed the range of a number.
  return version.length === other.length ? version < other : version.length < other.length;
}

function isNumber(version: string): boolean {
  return /^(0|[1-9][0-9]*)$/.test(version);
}

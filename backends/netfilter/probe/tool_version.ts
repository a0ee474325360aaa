/** Numbers of a version, e.g. `[1, 0, 6]`. */
export type Version = readonly number[];

/** The first version in a text: `nftables v1.0.6 (…)`, `6.18.44-generic`. Undefined when there is none. */
export function parseVersion(text: string): Version | undefined {
  const [, numbers] = /(?:^|[^\d.])(\d+(?:\.\d+)+)/.exec(text) ?? [];
  return numbers?.split(".").map(Number);
}

/** Whether `version` is `least` or newer; missing numbers are 0. */
export function isAtLeast(version: Version, least: Version): boolean {
  const length = Math.max(version.length, least.length);
  for (let index = 0; index < length; index++) {
    const difference = (version[index] ?? 0) - (least[index] ?? 0);
    if (difference !== 0) return difference > 0;
  }
  return true;
}

/** Formats a version. */
export function versionText(version: Version): string {
  return version.join(".");
}

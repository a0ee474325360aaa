/**
 * The properties of a machine that a backend's rules depend on, as a portable value: with it
 * another machine renders the same rules.
 *
 * @module
 */
/** Read once by `start()`, or on each call if they may change. */
export interface MachineFacts {
  /** Features of the kernel and the tools, by the mode's own names. */
  readonly features: Readonly<Record<string, boolean>>;
  /** Whether `nf_conntrack_tcp_be_liberal` is set, in a mode whose rules depend on it. */
  readonly beLiberal?: boolean;
}

/** The features of a mode as found; a feature that was not recorded keeps its value in `all`. */
export function featuresFound<T extends { readonly [K in keyof T]: boolean }>(
  all: T,
  { features }: MachineFacts,
): T {
  const found = new Map(Object.entries(features));
  const entries = Object.entries<boolean>(all).map(([name, usual]) => [
    name,
    found.get(name) ?? usual,
  ]);
  return Object.fromEntries(entries) as T;
}

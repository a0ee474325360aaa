/**
 * Foreign virtual servers on exactly the address and port of a Service. Only one server can exist
 * there, so the Service takes it over and its owner is notified.
 *
 * @module
 */
import type { Logger } from "../../lib/log/logger.ts";
import type { IpvsLayout, WantedServer } from "./layout.ts";
import type { SeenServer } from "./proc_ip_vs.ts";
import { describeServer, type ServerKey } from "./virtual_server.ts";

/**
 * Whether a virtual server cannot be a leftover of an earlier run: it has another distribution or
 * other endpoints. An identical server loses nothing.
 */
export function looksForeign(seen: SeenServer, { server, endpoints }: WantedServer): boolean {
  if (seen.scheduler !== server.scheduler) return true;
  const wanted = new Set<string>(endpoints.map(({ key }) => key));
  return seen.reals.some(({ key }) => !wanted.has(key));
}

/** A status has room for so many. */
const MOST_NAMED = 3;
/** Another program's whole table, such as kube-router's, is no reason for a line on each. */
const MOST_TOLD = 20;
const CURE = "give the Service or the other software another address or port";

/** Those that became a Service's since the process began, the first ones. */
export class TakenServers {
  readonly #logger: Logger;
  readonly #keys = new Set<ServerKey>();

  constructor({ logger }: { readonly logger: Logger }) {
    this.#logger = logger;
  }

  /** Reports once that a server was or will be taken over. */
  note(key: ServerKey, { owner }: Pick<WantedServer, "owner">): void {
    if (this.#keys.has(key) || this.#keys.size === MOST_TOLD) return;
    this.#keys.add(key);
    this.#logger.warn("A foreign virtual server had the address of a Service; it was changed", {
      server: describeServer(key),
      servicePort: owner,
      cure: CURE,
      ...(this.#keys.size === MOST_TOLD && { more: "further conflicts are not logged" }),
    });
  }

  /** For a person, those that are still a Service's; `undefined` = none. */
  describe(layout: Pick<IpvsLayout, "server">): string | undefined {
    const still = [...this.#keys].filter((key) => layout.server(key) !== undefined);
    if (still.length === 0) return undefined;
    const named = still.slice(0, MOST_NAMED).map(describeServer).join(", ");
    const orMore = this.#keys.size === MOST_TOLD ? " or more" : "";
    const more = still.length > MOST_NAMED
      ? ` and ${still.length - MOST_NAMED}${orMore} others`
      : "";
    return `foreign virtual servers were changed at ${named}${more}: ${CURE}`;
  }
}

/**
 * Foreign virtual servers on exactly the address and port of a Service. Only one server can exist
 * there, so the Service takes it over and its owner is notified. An identical server, which may be a
 * leftover of an earlier run, loses nothing.
 *
 * @module
 */
import type { Logger } from "../../lib/log/logger.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { describeServer, type ServerKey } from "../netfilter/virtual_servers.ts";

/** Maximum number of servers in `status`. */
const MOST_NAMED = 3;
/** Maximum number of log lines: another program, such as kube-router, may have thousands of servers. */
const MOST_LOGGED = 20;
const CURE = "give the Service or the other software another address or port";

/** The first servers that Services took over since the process started. */
export class TakenServers {
  readonly #logger: Logger;
  readonly #keys = new Set<ServerKey>();

  constructor({ logger }: { readonly logger: Logger }) {
    this.#logger = logger;
  }

  /** Reports once that a server was or will be taken over. */
  note(key: ServerKey, owner: ServicePortKey): void {
    if (this.#keys.has(key) || this.#keys.size === MOST_LOGGED) return;
    this.#keys.add(key);
    this.#logger.warn("A foreign virtual server had the address of a Service; it was changed", {
      server: describeServer(key),
      servicePort: owner,
      cure: CURE,
      ...(this.#keys.size === MOST_LOGGED && { more: "further conflicts are not logged" }),
    });
  }

  /** Describes those of them that Services still use, for the user; `undefined` = none. */
  describe(servers: Pick<ReadonlyMap<ServerKey, unknown>, "has">): string | undefined {
    const still = [...this.#keys].filter((key) => servers.has(key));
    if (still.length === 0) return undefined;
    const named = still.slice(0, MOST_NAMED).map(describeServer).join(", ");
    const orMore = this.#keys.size === MOST_LOGGED ? " or more" : "";
    const more = still.length > MOST_NAMED
      ? ` and ${still.length - MOST_NAMED}${orMore} others`
      : "";
    return `foreign virtual servers were changed at ${named}${more}: ${CURE}`;
  }
}

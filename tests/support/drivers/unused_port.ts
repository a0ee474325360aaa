/**
 * A port for a server that must come back at the same address after it was killed.
 *
 * @module
 */

const LOWEST = 20_000;
const RANGES = 12;
const PORTS_OF_RANGE = 1_000;

/**
 * The start of a range that no other process uses, while this one holds a port of the same number on
 * another address: what a test starts listens seconds later, and another process might be given its
 * port meanwhile. With more processes than ranges, one is shared.
 */
const start = LOWEST + PORTS_OF_RANGE * claimRange();

function claimRange(): number {
  for (let range = 0; range < RANGES; range++) {
    try {
      // It is not closed: it ends with the process, or the worker.
      Deno.listen({ hostname: "127.255.255.254", port: LOWEST - RANGES + range });
      return range;
    } catch {
      // Another process has it, or this one may not listen, and asks for no port either.
    }
  }
  return Math.floor(Math.random() * RANGES);
}

/** The ports returned so far. A second caller may ask before the first one listens. */
const given = new Set<number>();

/**
 * Returns a closed loopback TCP port. It lies below the range from which Linux takes the ports of
 * outgoing connections: a client that retries while the server is down could otherwise get this
 * very port and connect to itself.
 */
export function unusedPort(): number {
  for (;;) {
    const port = start + Math.floor(Math.random() * PORTS_OF_RANGE);
    if (given.has(port)) continue;
    try {
      Deno.listen({ hostname: "127.0.0.1", port }).close();
      given.add(port);
      return port;
    } catch (error) {
      if (!(error instanceof Deno.errors.AddrInUse)) throw error;
    }
  }
}

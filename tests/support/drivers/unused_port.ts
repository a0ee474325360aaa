/**
 * A port for a server that must come back at the same address after it was killed.
 *
 * @module
 */

const LOWEST = 20_000;
const HIGHEST = 32_000;

/** The ports returned so far. A second caller may ask before the first one listens. */
const given = new Set<number>();

/**
 * A loopback TCP port that nobody listens on. It lies below the range from which Linux takes the
 * ports of outgoing connections: while the server is away, a client that calls again and again could
 * otherwise be given that very port and be connected to itself.
 */
export function unusedPort(): number {
  for (;;) {
    const port = LOWEST + Math.floor(Math.random() * (HIGHEST - LOWEST));
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

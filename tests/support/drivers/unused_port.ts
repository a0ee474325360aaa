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
 * Returns a closed loopback TCP port. It lies below the range from which Linux takes the ports of
 * outgoing connections: a client that retries while the server is down could otherwise get this
 * very port and connect to itself.
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

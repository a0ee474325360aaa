/**
 * The order of endpoints in the maps. Pure.
 *
 * @module
 */
import type { Endpoint, EndpointKey } from "../../lib/proxy/endpoint.ts";

/**
 * The endpoints in an order that moves as few as can be: who stays keeps its number, who comes
 * takes the number of one that went, and what is left open is closed from the end. Sorted, one new
 * endpoint of fifty would move half of the others.
 */
export function arrangeEndpoints(
  wanted: readonly Endpoint[],
  previous: readonly Pick<Endpoint, "key">[] | undefined,
): readonly Endpoint[] {
  if (previous === undefined || isSame(wanted, previous)) return wanted;
  const left = new Map<EndpointKey, Endpoint>(wanted.map((endpoint) => [endpoint.key, endpoint]));
  const places: (Endpoint | undefined)[] = previous.map(({ key }) => {
    const endpoint = left.get(key);
    left.delete(key);
    return endpoint;
  });
  const arrivals = left.values();
  const filled = [...places.map((place) => place ?? arrivals.next().value), ...arrivals];
  for (let index = 0; index < filled.length; index++) {
    while (filled.length > 0 && filled.at(-1) === undefined) filled.pop();
    if (index < filled.length && filled[index] === undefined) filled[index] = filled.pop();
  }
  const arranged = filled.filter((endpoint) => endpoint !== undefined);
  // The list of the plan is there anyway, and takes no memory of its own.
  return isSame(wanted, arranged) ? wanted : arranged;
}

function isSame(
  left: readonly Pick<Endpoint, "key">[],
  right: readonly Pick<Endpoint, "key">[],
): boolean {
  return left.length === right.length && left.every(({ key }, index) => key === right[index]?.key);
}

import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { testEndpoint } from "../../tests/support/builders/service_plans.ts";
import { arrangeEndpoints } from "./arrangement.ts";

const endpoints = (...names: readonly number[]) =>
  names.map((name) => testEndpoint(`10.0.0.${name}:80`));
const names = (list: readonly { readonly address: string }[]) =>
  list.map(({ address }) => Number(address.split(".")[3]));

Deno.test("arrangeEndpoints() gives who comes the number of who went", () => {
  const cases: readonly (readonly [previous: number[], wanted: number[], arranged: number[]])[] = [
    [[], [1, 2], [1, 2]],
    [[1, 2, 3], [2, 3, 4], [4, 2, 3]],
    [[1, 2, 3], [2, 3], [3, 2]],
    [[1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4]],
    [[2, 3], [1, 2, 3], [2, 3, 1]],
    [[1, 2, 3], [], []],
    [[1, 2, 3, 4], [4], [4]],
  ];
  for (const [previous, wanted, arranged] of cases) {
    const found = arrangeEndpoints(endpoints(...wanted), endpoints(...previous));
    assertEquals(names(found), arranged, `${previous} → ${wanted}`);
  }
});

Deno.test("arrangeEndpoints() keeps the list of the plan where nothing is to be kept in place", () => {
  const wanted = endpoints(1, 2);
  assert(arrangeEndpoints(wanted, undefined) === wanted);
  assert(arrangeEndpoints(wanted, endpoints(1, 2)) === wanted);
});

Deno.test("arrangeEndpoints() has each endpoint once, and moves no more than it has to", () => {
  const list = fc.uniqueArray(fc.integer({ min: 1, max: 20 }), { maxLength: 12 });
  fc.assert(fc.property(list, list, (previous, wanted) => {
    const sorted = wanted.sort((left, right) => left - right);
    const arranged = names(arrangeEndpoints(endpoints(...sorted), endpoints(...previous)));
    assertEquals([...arranged].sort((left, right) => left - right), sorted);
    const stayed = previous.filter((name) => wanted.includes(name)).length;
    const kept = previous.filter((name, index) => arranged[index] === name).length;
    // Who stays has to move only where the list is too short for its number.
    const beyond = previous.slice(wanted.length).filter((name) => wanted.includes(name)).length;
    assert(kept >= stayed - beyond, `${previous} → ${sorted}: ${arranged}`);
  }));
});

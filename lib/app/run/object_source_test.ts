import { assertEquals } from "@std/assert";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { parseIpAddress } from "../../net/ip_address.ts";
import { ServerAddresses } from "./object_source.ts";

Deno.test("ServerAddresses.run() ends while a resolver does not answer", async () => {
  const addresses = new ServerAddresses(
    new FakeClock(),
    "https://api.example.org:6443",
    () => {},
    () => new Promise(() => {}),
  );
  const abort = new AbortController();
  const running = addresses.run(abort.signal);
  abort.abort();
  await running;
});

Deno.test("ServerAddresses.run() keeps nothing of a connection: no promise is in two races", async () => {
  const clock = new FakeClock();
  let lookups = 0;
  const lookUp = () => {
    lookups++;
    return Promise.resolve([parseIpAddress("192.0.2.1")]);
  };
  const addresses = new ServerAddresses(clock, "https://api.example.org:6443", () => {}, lookUp);
  const abort = new AbortController();
  const race = Promise.race;
  const raced: unknown[] = [];
  Promise.race = (each: Iterable<unknown>) => {
    const promises = [...each];
    raced.push(...promises);
    return race.call(Promise, promises);
  };
  try {
    const running = addresses.run(abort.signal);
    for (let turn = 0; turn < 5; turn++) {
      await clock.advance(0);
      addresses.add("192.0.2.2");
    }
    abort.abort();
    await running;
  } finally {
    Promise.race = race;
  }
  assertEquals([lookups, new Set(raced).size], [5, raced.length]);
});

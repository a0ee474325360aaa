import { assertEquals, assertRejects } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { type ServiceKey, serviceKey } from "../../lib/proxy/service_port_name.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { FakeLocalAddresses } from "../../tests/support/fakes/fake_local_addresses.ts";
import { AddressBook } from "./address_book.ts";
import type { WantedAddress } from "./local_addresses.ts";

const [A, B] = ["127.96.0.1", "127.96.0.2"].map(parseIpAddress) as [
  WantedAddress["address"],
  WantedAddress["address"],
];
const SERVICE: ServiceKey = serviceKey({ namespace: "ns", name: "web" });

function want(address: WantedAddress["address"]): WantedAddress {
  return { address, role: "ClusterIP", service: SERVICE };
}

function setUp() {
  const local = new FakeLocalAddresses();
  return { local, book: new AddressBook({ clock: new FakeClock(), local }) };
}

Deno.test("AddressBook.acquire() asks for all new addresses in one batch, each once", async () => {
  const { local, book } = setUp();
  for (const address of [A, B, A]) book.retain(want(address));
  assertEquals(await book.acquire(), 2);
  assertEquals(await book.acquire(), 0);
  assertEquals(local.calls, [`acquire ${A} ${B}`]);
  assertEquals(book.placeOf(A), { kind: "local" });
});

Deno.test("AddressBook.giveBack() gives an address back when its last user is gone", async () => {
  const { local, book } = setUp();
  for (const address of [A, B, A]) book.retain(want(address));
  await book.acquire();
  for (const address of [A, B]) book.release(address);
  assertEquals(await book.giveBack(), 1);
  book.release(A);
  assertEquals(await book.giveBack(), 1);
  assertEquals(local.calls.slice(1), [`release ${B}`, `release ${A}`]);
  assertEquals([book.placeOf(A), book.size], [undefined, 0]);
});

Deno.test("AddressBook keeps an address that goes from one user to another", async () => {
  const { local, book } = setUp();
  book.retain(want(A));
  await book.acquire();
  book.release(A);
  book.retain(want(A));
  await book.acquire();
  await book.giveBack();
  assertEquals(local.calls.filter((call) => call.startsWith("release")), []);
  assertEquals(book.placeOf(A), { kind: "local" });
});

Deno.test("AddressBook.retry() asks again only for unavailable addresses", async () => {
  const { local, book } = setUp();
  local.answers.set(A, { kind: "unavailable", reason: "no" });
  for (const address of [A, B]) book.retain(want(address));
  assertEquals(await book.acquire(), 1);
  local.answers.delete(A);
  for (const address of [A, B]) book.retry(address);
  assertEquals(await book.acquire(), 1);
  assertEquals(local.calls, [`acquire ${A} ${B}`, `acquire ${A}`]);
});

Deno.test("AddressBook.acquire() asks again after a failure", async () => {
  const { local, book } = setUp();
  book.retain(want(A));
  local.failure = new Error("killed");
  await assertRejects(() => book.acquire(), Error, "killed");
  assertEquals(await book.acquire(), 1);
});

Deno.test("AddressBook.configure() passes the demand on when it has changed much", async () => {
  const { local, book } = setUp();
  const ranges = [parseCidr("10.96.0.0/16")];
  await book.configure(ranges, { always: true });
  book.retain(want(A));
  await book.configure(ranges, { always: false });
  await book.configure(ranges, { always: false });
  book.retain(want(B));
  await book.configure(ranges, { always: false });
  assertEquals(local.calls, ["configure 0 in 10.96.0.0/16", "configure 1 in 10.96.0.0/16"]);
});

Deno.test("AddressBook.configure() has every address asked for again when places may differ", async () => {
  const { local, book } = setUp();
  for (const address of [A, B]) book.retain(want(address));
  await book.acquire();
  local.renew = true;
  local.answers.set(A, { kind: "standIn", address: parseIpAddress("127.112.0.1") });
  assertEquals(await book.configure([], { always: true }), true);
  await book.acquire();
  assertEquals(local.calls.at(-1), `acquire ${A} ${B}`);
  assertEquals(book.placeOf(A)?.kind, "standIn");
});

import { assertEquals } from "@std/assert";
import { tryParseIpAddress } from "../net/ip_address.ts";
import { isServableAddress } from "./schema.ts";

const ADDRESSES: readonly { text: string; isServable: boolean }[] = [
  { text: "10.0.0.1", isServable: true },
  { text: "127.0.0.1", isServable: true },
  { text: "fd00::1", isServable: true },
  { text: "::1", isServable: true },
  { text: "fe8::1", isServable: true },
  { text: "ff::1", isServable: true },
  { text: "0.0.0.0", isServable: false },
  { text: "::", isServable: false },
  { text: "169.254.169.254", isServable: false },
  { text: "::ffff:169.254.169.254", isServable: false },
  { text: "169.254.0169.254", isServable: false },
  { text: "224.0.0.1", isServable: false },
  { text: "255.255.255.255", isServable: false },
  { text: "fe80::1", isServable: false },
  { text: "febf::1", isServable: false },
  { text: "ff02::1", isServable: false },
  { text: "web.local", isServable: false },
];

for (const { text, isServable } of ADDRESSES) {
  Deno.test(`isServableAddress() is ${isServable} for ${text}`, () => {
    assertEquals(isServableAddress(tryParseIpAddress(text)), isServable);
  });
}

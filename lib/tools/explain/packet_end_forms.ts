/** The forms of a sender, for help and for errors. */
export const FROM_FORMS = "an address (10.1.2.3, or 10.1.2.3@eth0 with the interface by which it " +
  "arrives), NAMESPACE/ADDRESS or NAMESPACE/POD, 'node' or 'outside'";
/** The forms of a destination. */
export const TO_FORMS =
  "ADDRESS:PORT, [IPv6]:PORT, NAMESPACE/SERVICE[:PORT] with the port's name " +
  "or number, NAMESPACE/POD:PORT, or node:NODEPORT; each with /UDP or /SCTP behind a port that is not TCP's";


case $1 in
remove) before_removal ;;
esac
